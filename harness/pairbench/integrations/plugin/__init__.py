"""What the pytest plugin does; its hooks are in `pairbench.integrations.pytest_plugin`."""
