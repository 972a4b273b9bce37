package org.falkirk;

import py4j.Gateway;

/** Lets the JVM forget many objects at once that Python no longer uses; py4j sends a command for each. */
public final class Released {
    private Released() {}

    /**
     * Forgets objects.
     *
     * @param gateway the gateway that handed them out
     * @param ids their names there, separated by spaces; unknown ones are ignored
     */
    public static void forget(Gateway gateway, String ids) {
        for (String id : ids.split(" ")) {
            gateway.deleteObject(id);
        }
    }
}
