package org.falkirk;

/**
 * A schema registry gave no usable answer. Nothing is wrong with the record, so it must be read again later.
 *
 * <p>Python recognizes the marker in the text of the task's error (`falkirk/runtime/spark/causes.py`).
 */
public final class RegistryAway extends RuntimeException {
  private static final long serialVersionUID = 1L;

  RegistryAway(String url, int id, String reason) {
    super("FALKIRK_REGISTRY_AWAY: the schema registry " + url + " does not give schema " + id + ": " + reason);
  }
}
