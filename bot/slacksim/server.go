package slacksim

// Server is a workspace that listens on a loopback address.
type Server struct {
	*Workspace
	// URL is where it listens, such as http://127.0.0.1:4000; the page is at its root.
	URL string
}

// Start makes a workspace and serves it on Options.Addr. It refuses an address that isn't loopback.
func Start(options Options) (*Server, error) { panic("API sketch") }

// Close stops the server and ends all connections.
func (s *Server) Close() error { panic("API sketch") }
