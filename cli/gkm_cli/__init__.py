"""The command line `gkm`, also `kubectl gkm`."""
