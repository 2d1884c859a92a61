"""The controller of captures: it makes caches from captures that nodes announce, and deletes those past retention."""
