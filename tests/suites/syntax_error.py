"""A suite that is no Python."""

from pairbench import Operator

syntax_error = Operator("syntax_error", baseline=lambda x: x +)
