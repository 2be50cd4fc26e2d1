"""Rewrites of plans: each keeps the rows that every sink gets and makes them cheaper to compute."""

from flowrun.plan.rewrites.rules import RULES, Rule, optimise, rules_with

__all__ = ["RULES", "Rule", "optimise", "rules_with"]
