package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import py4j.Gateway;

/** Makes a list of objects that Python has from the gateway; py4j sends a command for each element. */
public final class ObjectList {
    private ObjectList() {}

    /**
     * Return a new list of objects.
     *
     * @param gateway the gateway that handed them out
     * @param ids their names there, separated by spaces
     */
    public static List<Object> of(Gateway gateway, String ids) {
        List<Object> objects = new ArrayList<>();
        for (String id : ids.split(" ")) {
            objects.add(gateway.getObject(id));
        }
        return objects;
    }
}
