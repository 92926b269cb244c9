"""Tests of what builds and checks the project: build backend, switches, house rules, ./dev."""
