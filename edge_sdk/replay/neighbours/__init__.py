"""The strongest neighbour: the best of what a device can do by itself, and what one place with all data would reach.

On the workstation only. Three kinds of models are trained: the run's network, a linear model and extremely randomised
trees, the last two on features of samples. Which of them "alone" is, and with which tuning, the fleet chooses on
validation samples; the test part is judged once, with what was chosen.
"""
