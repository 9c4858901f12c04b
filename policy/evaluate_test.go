package policy_test

import "time"

// smallest is a policy with only what is required, for tests to add to.
const smallest = `version: 1
mode: cautious
roles:
  oncall: {users: [U0ADA, U0GRACE]}
approval:
  requires: [{role: oncall}]
`

// at is a time as RFC 3339.
func at(text string) time.Time {
	made, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return made
}
