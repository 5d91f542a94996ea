"""Wire formats of model providers, each pure and a stranger to the others."""
