"""Images of captures: how they are named, their repository, the statement about their files, and their deletion."""
