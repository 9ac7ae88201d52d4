"""One module a job; each reads as the story of a run. Only here and in `app.py` is the configuration known."""
