"""Studies that the paper or this project asks for: regimes, the race of all methods, adaptive temperatures."""
