"""What happened: the views of the stages."""
