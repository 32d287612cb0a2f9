"""Measured response lengths, as 41 evenly spaced quantiles, in units of the width at which responses were cut off.

`direct`: 7,000 responses of a 3B model after RL, no long thinking, to AIME 2024 and AMC 2023, cut at 2,048 tokens.
Source: open-thought/reasoning-gym-eval (Apache-2.0), lengths in characters; 2.32 characters a token puts the heap of
cut responses, at 4,750 characters, at the width. The scale is good to 20 %: 2.7 would make the mean 0.26 of the width.

`thinking`: 7,744 responses of DeepSeek-R1-Distill-Qwen-1.5B to AIME 1983 to 2024, cut at 16,000 tokens.
Source: zacksifakis/task-hardness-analysis, token counts.
"""

QUANTILES: dict[str, tuple[float, ...]] = {
    "direct": (
        *(0.0735, 0.1242, 0.1387, 0.1486, 0.1579, 0.1654, 0.1724, 0.1787, 0.1852, 0.1903, 0.1958, 0.2008, 0.2055),
        *(0.2109, 0.2156, 0.2206, 0.2256, 0.2298, 0.2345, 0.2396, 0.2448, 0.2512, 0.2571, 0.2634, 0.2703, 0.2775),
        *(0.2848, 0.2940, 0.3034, 0.3131, 0.3249, 0.3384, 0.3524, 0.3708, 0.3925, 0.4232, 0.4649, 0.5222, 0.6664),
        *(0.9853, 1.0),
    ),
    "thinking": (
        *(0.0403, 0.1313, 0.1530, 0.1696, 0.1861, 0.2019, 0.2176, 0.2344, 0.2471, 0.2637, 0.2785, 0.2941, 0.3101),
        *(0.3261, 0.3446, 0.3633, 0.3796, 0.3981, 0.4166, 0.4344, 0.4547, 0.4744, 0.4911, 0.5043, 0.5238, 0.5440),
        *(0.5620, 0.5803, 0.5985, 0.6175, 0.6357, 0.6581, 0.6761, 0.7033, 0.7238, 0.7501, 0.7809, 0.8222, 0.8766),
        *(0.9730, 1.0),
    ),
}
