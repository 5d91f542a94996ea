"""The calls of the service, one module per thing that is called upon."""
