"""Agents that read: a model looks at a real repository through a shell that only reads, and submits an answer.

After SWE-ZERO (marin #4435, #4561, #4653): nothing is executed, so any repository will do and no container is built.
"""
