"""What the jobs of jobs.py do."""
from rq import get_current_job


def add(a, b):
    get_current_job().connection.rpush("ran", a + b)
    return a + b


def fail():
    raise ValueError("on purpose")
