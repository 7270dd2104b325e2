"""Sites, parties, messages, hosts, policies, ledger: everything between protocol and engine."""
