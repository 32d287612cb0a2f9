"""How good a trained policy is: k draws on each problem, as averages, best-of-k and majority votes with intervals."""
