"""Where in a parameter's range the results change."""
