"""Write plans, their status, the status of Runs, and Events; no other code of the controller writes."""
