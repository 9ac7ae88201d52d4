"""What holds a run back: stages measured alone, a verdict in words, counts chosen by measurement."""
