package netns

const childEnv = "URXE_NETNS_CHILD"

func child(string) {}
