// Package rcm is the other end of rdmacm-utils' programs, over verbs/rdmacm: of rping, ucmatose, udaddy and cmtime. It
// speaks what they speak once they are connected.
package rcm
