"""The reconcile loop: reads the desired and the observed state, decides per cache, and acts."""
