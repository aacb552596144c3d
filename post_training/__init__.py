"""Reinforcement learning as an engine: environments with verifiers, rollouts as data, and the loop that learns from them.

What belongs here: prompts and their verifiers, the sampler, advantages and losses over log-probabilities, the table of
rollouts, and the job `python -m post_training job.json`. Optimizers, models and checkpoints belong to the trainer.
"""
