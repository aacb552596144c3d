"""Run untrusted programs: namespaces, limits, and the protocol with the child process.

The files that run inside the sandbox import the standard library only. Grading belongs in `evals.tasks`.
"""
