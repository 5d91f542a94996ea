"""Tests, in folders that mirror app."""
