"""The gain of malleable jobs on traces, and what each rule of the policy is worth."""
