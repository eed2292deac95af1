// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"reflect"
	"testing"
)

// TestNothingIsInherited: a wrapper of a host implements each method of Remote and Writer itself. If it embedded one
// of these, a method that is added later would act on the real host.
func TestNothingIsInherited(t *testing.T) {
	for _, wrapper := range []reflect.Type{reflect.TypeFor[overlay](), reflect.TypeFor[recorder]()} {
		for i := range wrapper.NumField() {
			field := wrapper.Field(i)
			if !field.Anonymous {
				continue
			}
			for _, acts := range []reflect.Type{reflect.TypeFor[Remote](), reflect.TypeFor[Writer]()} {
				for m := range acts.NumMethod() {
					if name := acts.Method(m).Name; hasMethod(field.Type, name) {
						t.Errorf("%s embeds %s, and with it %s", wrapper, field.Type, name)
					}
				}
			}
		}
	}
	if base, _ := reflect.TypeFor[overlay]().FieldByName("base"); base.Type != reflect.TypeFor[Reader]() {
		t.Errorf("the host of a dry run wraps a %s, want a Reader", base.Type)
	}
}

func hasMethod(t reflect.Type, name string) bool {
	_, found := t.MethodByName(name)
	return found
}

// TestPartsAreSmall limits the parts of Host to a size that can be read at once.
func TestPartsAreSmall(t *testing.T) {
	const most = 15
	total := 0
	for _, part := range []reflect.Type{
		reflect.TypeFor[FileReader](), reflect.TypeFor[PathReader](), reflect.TypeFor[UnitReader](), reflect.TypeFor[RuntimeReader](),
		reflect.TypeFor[SystemReader](), reflect.TypeFor[NetworkReader](), reflect.TypeFor[Remote](), reflect.TypeFor[FileWriter](),
		reflect.TypeFor[OwnerWriter](), reflect.TypeFor[UnitWriter](), reflect.TypeFor[RuntimeWriter](), reflect.TypeFor[NetworkWriter](),
		reflect.TypeFor[KernelWriter](), reflect.TypeFor[DiskTester](),
	} {
		total += part.NumMethod()
		if part.NumMethod() > most {
			t.Errorf("%s has %d methods", part, part.NumMethod())
		}
	}
	if all := reflect.TypeFor[Host]().NumMethod(); all != total {
		t.Errorf("Host has %d methods, its parts have %d", all, total)
	}
}
