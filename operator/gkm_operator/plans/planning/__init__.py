"""From a run and free capacity to a plan or a refusal."""
