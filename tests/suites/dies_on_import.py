"""A suite that takes the process that loads it with it, leaving no exception to catch."""

import os

os._exit(3)
