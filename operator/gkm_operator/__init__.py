"""The operator: the admission webhook and the controllers, as two commands that share no interpreter.

May import all of gkm; must never import another process's package.
"""
