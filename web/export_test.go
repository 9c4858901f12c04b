package web

var (
	ParseRequest = parseRequest
	ParseOutcome = parseOutcome
	ParseWait    = parseWait
)
