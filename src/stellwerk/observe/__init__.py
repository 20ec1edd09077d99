"""Accounts of what happened: the ledger."""
