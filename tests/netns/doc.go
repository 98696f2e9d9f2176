// Package netns holds the end-to-end tests: devices of package verbs over real
// AF_XDP sockets, on veth pairs between network namespaces of their own. What
// they need besides root, a test that skips says.
package netns
