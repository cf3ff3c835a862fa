"""Widgets and helpers shared by all pages."""
