"""What every method may use. Nothing in here knows a method."""
