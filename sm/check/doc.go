// Package check walks finished forwarding tables as packets would and reports
// what holds: that every host reaches every LID, how many paths each link
// carries, and that no lane's channel dependencies contain a cycle (Dally and
// Seitz: without one, no deadlock). It shares no code with the engines.
package check
