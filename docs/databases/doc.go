// Package databases plays the SQL of docs/recipes.md on real databases. It is a module of its own, so that nobody depends
// on their drivers.
package databases
