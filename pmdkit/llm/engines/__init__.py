"""Engines write responses. One protocol, one file per engine."""
