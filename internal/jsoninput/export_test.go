package jsoninput

var (
	WholeNumber = wholeNumber
	ErrNotWhole = errNotWhole
	ErrTooSmall = errTooSmall
	ErrTooLarge = errTooLarge
)
