"""Images of captures: how they are named, their repository, and the statement about their files."""
