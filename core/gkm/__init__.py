"""The code that several GKM processes need. Importing this package loads no module: the CSI process saves every MiB."""
