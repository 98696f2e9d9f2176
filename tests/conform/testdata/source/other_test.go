package sample

var unrelated = "5.11/4" // doesn't import the table
