"""What more than one GKM process needs. Importing this package loads nothing else: the CSI process counts every MiB."""
