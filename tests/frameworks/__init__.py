"""Tests of the frameworks."""
