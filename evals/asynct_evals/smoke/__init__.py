"""The gate of continuous integration: every production path serves, rightly and fast enough."""
