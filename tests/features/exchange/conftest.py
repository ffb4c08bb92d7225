"""Tests here start pytest themselves, too."""

from tests.integrations.conftest import own_session

__all__ = ["own_session"]
