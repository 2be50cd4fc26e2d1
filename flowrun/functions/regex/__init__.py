"""Regular expressions as Java has them: their syntax, the part that RE2 matches alike, and a time limit for the rest."""
